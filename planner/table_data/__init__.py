"""What the columns of tables look like, and how much those of two tables differ, as SQL."""
