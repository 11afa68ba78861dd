"""How many groups a cluster may have, and how many replicas a group."""

GROUPS_MAX = 4
REPLICAS_MAX = 3
# A group that elects its leader has an odd number: an even one outvotes no more dead replicas.
VOTERS = (3, 5)
