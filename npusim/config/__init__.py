"""Systems, workload and run settings: frozen models, YAML files, overrides, schemas and hashes."""
