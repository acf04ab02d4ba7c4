"""PaaS: configuration and workload managers."""
