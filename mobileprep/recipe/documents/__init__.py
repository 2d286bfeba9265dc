"""Documents generated from the declarations of recipes: editor schemas and reference pages."""
