"""What two builds of a target differ in, and which key of the recipe it comes from."""
