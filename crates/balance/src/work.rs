//! Kinds of work that a back end is given, and what each counts.

/// The kinds of transaction a policy may weigh differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The request that begins a call (INVITE).
    CallStart,
    /// The request that ends one (BYE).
    CallEnd,
    /// INFO.
    Info,
    /// MESSAGE.
    Message,
    /// NOTIFY.
    Notify,
    /// OPTIONS.
    Options,
    /// PRACK.
    Prack,
    /// PUBLISH.
    Publish,
    /// REFER.
    Refer,
    /// REGISTER.
    Register,
    /// SUBSCRIBE.
    Subscribe,
    /// UPDATE.
    Update,
    /// Any other request.
    Other,
}

impl Work {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 13;
}

/// What a lease counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseKind {
    pub(crate) calls: u32,
    pub(crate) transactions: u32,
    /// In hundredths of a BYE.
    pub(crate) work: u32,
}
