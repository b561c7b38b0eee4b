//! The screen of the partner: draws `agent`'s events and turns keys into its commands.
