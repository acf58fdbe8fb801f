"""Extensions for an environment that exists already: look at it, then wheels, then sources, then proof."""
