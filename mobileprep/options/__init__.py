"""Options: how one is declared, once, and what is made from that."""
