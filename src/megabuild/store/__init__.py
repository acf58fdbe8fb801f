"""Where finished work is kept: a config's published channel, and a store that machines share."""
