//! Deviations of the core from the rules, which the reference tolerates. When the core follows a
//! rule, its constant becomes false and is removed.

/// A request that is answered with 440 is entered in the call table, and its CANCEL is forwarded.
pub const PLACED_BEFORE_440: bool = true;

/// RFC 3261 §17.2.3: "the To tag of the ACK matches the To tag of the response sent by the server
/// transaction" is not checked; and an ACK before any final response is absorbed.
pub const OLD_ACK_WITHOUT_TAG: bool = true;

/// RFC 5393 §5.3.3: "A proxy SHOULD NOT use a smaller amount of Max-Breadth than was present in the
/// original request": the shares of a later group include targets that are down.
pub const BREADTH_FOR_THE_ABSENT: bool = true;
