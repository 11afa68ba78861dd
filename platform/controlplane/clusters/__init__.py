"""Clusters, their broker groups, replicas and name servers, credentials, and the operations that change them."""
