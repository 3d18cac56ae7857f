"""What an operator can have looked at: whether settings, keys, data folder and disk are as they should be."""
