"""Reports of forecasts of rankings, and figures of the label-ranking experiments."""
