"""What every other room stands on: settings, identity, encryption, files, networks."""
