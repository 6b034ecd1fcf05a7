import torch

from leco.methods.refine import balancing_bias, condition


def test_every_class_is_guessed_as_often_as_it_should_be_and_none_against_its_label():
    torch.manual_seed(0)
    parent = torch.tensor([0, 0, 0, 1, 1])
    given = torch.randint(2, (400,))
    evidence = torch.where(parent[None] == given[:, None], 0.0, -torch.inf)
    logits = torch.randn(400, 5) + torch.tensor([2.0, 0.0, -1.0, 0.0, 3.0])
    frequencies = torch.tensor([9.0, 9.0, 19.0, 9.0, 29.0])  # with one more each: 1/4, 1/4, 1/2; 1/4, 3/4
    probs = condition(logits + balancing_bias(logits, evidence, frequencies), evidence)
    counts = torch.bincount(given, minlength=2).float()
    expected = counts[parent] * torch.tensor([0.25, 0.25, 0.5, 0.25, 0.75])
    assert torch.allclose(probs.sum(dim=0), expected, rtol=1e-2)
    assert (probs[evidence == -torch.inf] == 0).all()


def test_classes_that_no_label_allows_leave_the_bias_finite():
    evidence = torch.tensor([[0.0, 0.0, -torch.inf]]).expand(6, 3)
    bias = balancing_bias(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), evidence, torch.zeros(3))
    assert bias.isfinite().all()
