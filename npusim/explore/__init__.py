"""Many runs from one file: which points, where their results stay, who computes them."""
