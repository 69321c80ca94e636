//! Locations: folders, links, prefixes, locks and the stores behind them.
