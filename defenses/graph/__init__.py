"""Graph: features, edges and neighbourhoods are reduced or merged before anything is sent."""
