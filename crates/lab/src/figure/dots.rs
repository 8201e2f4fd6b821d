//! The grid on which figures are drawn, finer than a unit of the SVG: its numbers are whole, and the
//! bitmap needs it to smooth its edges.

/// Drawn dots to a unit of the SVG.
pub(super) const DOTS: i32 = 4;
