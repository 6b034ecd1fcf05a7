"""Models that left training: bundles, what is predicted with them, how they are judged, upgraded and exported."""
