"""The federation over Flower: sites with data of their own, a coordinator with validation data, a network between."""
