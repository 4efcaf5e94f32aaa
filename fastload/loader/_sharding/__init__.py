"""Order of an epoch over several ranks.

`order` gives the sample at each position of an epoch, shuffled without a table, and each rank's positions.
All of it is arithmetic on (seed, epoch, position): no rank has to know what another one does, and a position
is all that a resumed epoch needs. `ranks` finds out how many there are.
"""
