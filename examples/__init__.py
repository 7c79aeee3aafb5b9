"""End-to-end scripts on real data; the tests run them."""
