"""The store of many machines: an etcd cluster, over its JSON gateway."""
