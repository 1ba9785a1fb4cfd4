"""The template operator: a compiler whose decisions are data (a genome), so that a search can change them."""
