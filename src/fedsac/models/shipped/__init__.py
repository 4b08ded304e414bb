"""Networks that come with fedsac, as plain torch modules. A factory takes the shape of one input and the number of
classes."""
