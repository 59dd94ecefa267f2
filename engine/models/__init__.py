"""Model files: reading headers, finding and keeping them."""
