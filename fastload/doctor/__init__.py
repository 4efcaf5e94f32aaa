"""What holds a training back: watch a script, measure its loader and its step, judge, and try fixes."""
