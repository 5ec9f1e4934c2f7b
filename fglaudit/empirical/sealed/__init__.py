"""What travels sealed: is it encrypted freshly, by a known scheme, with no key in sight?"""
