"""A run as one page: what is noted while it goes on, and the page that is made of that."""
