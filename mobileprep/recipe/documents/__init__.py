"""What is made from the declarations of recipes: schemas for editors, and pages."""
