import torch

from leco.data.pictures import contact_sheet


def test_a_contact_sheet_shows_every_image_of_every_row():
    sheet = contact_sheet(
        [("grey", torch.full((3, 1, 8, 8), 50).byte()), ("colour", torch.full((2, 3, 80, 80), 9).byte())]
    )
    colours = {colour: count for count, colour in sheet.getcolors(sheet.width * sheet.height)}
    assert colours[50, 50, 50] >= 3 * 64 * 64
    assert colours[9, 9, 9] >= 2 * 80 * 80
    assert contact_sheet([]).size == (8, 1)
