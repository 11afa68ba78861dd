"""Groups that elect their leader: transfers, votes, growth, removal and recovery."""
