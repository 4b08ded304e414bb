"""A federation over Flower: sites train on their own data; a coordinator with validation data runs the round loop."""
