"""torch: modules, exported programs and .pt2 files. Files are read without torch."""
