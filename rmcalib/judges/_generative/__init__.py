"""Language models that judge: they are asked in words, and their answers become rewards."""
