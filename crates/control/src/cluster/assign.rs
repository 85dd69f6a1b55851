//! Which orders are to be written, and who comes first in them.
