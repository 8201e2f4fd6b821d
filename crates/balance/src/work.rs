//! Kinds of transaction, and the counts that a lease adds at its back end.

/// Kinds of transaction that a policy may weigh in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A request that starts a call (INVITE).
    CallStart,
    /// A request that ends a call (BYE).
    CallEnd,
    /// An INFO request.
    Info,
    /// A MESSAGE request.
    Message,
    /// A NOTIFY request.
    Notify,
    /// An OPTIONS request.
    Options,
    /// A PRACK request.
    Prack,
    /// A PUBLISH request.
    Publish,
    /// A REFER request.
    Refer,
    /// A REGISTER request.
    Register,
    /// A SUBSCRIBE request.
    Subscribe,
    /// An UPDATE request.
    Update,
    /// Any other request.
    Other,
}

impl Work {
    /// Number of kinds of work.
    pub(crate) const COUNT: usize = 13;
}

/// The counts that a lease adds at its back end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseKind {
    pub(crate) calls: u32,
    pub(crate) transactions: u32,
    /// Weight of the transaction in hundredths. By default, a BYE has the weight 100.
    pub(crate) work: u32,
}
