//! Sums of structs of counts.

/// Adds fields of another struct to the same fields of `self`, in a function of the struct.
///
/// The fields of the first list are added by `+=`. For each field after `merge`, the function
/// `merge` of that field is called. The fields after `but` are left alone. A field that is in none
/// of these lists is a compile-time error, so a new field cannot be forgotten.
///
/// ```
/// use tidegate_world::add_fields;
///
/// struct Queue {
///     offered: u64,
///     dropped: u64,
///     length_max: usize,
/// }
///
/// struct Server {
///     restarts: u64,
///     queue: Queue,
/// }
///
/// impl Queue {
///     fn merge(&mut self, other: &Self) {
///         self.length_max = self.length_max.max(other.length_max);
///         add_fields! { self += other { offered, dropped; but length_max } }
///     }
/// }
///
/// impl Server {
///     fn merge(&mut self, other: &Self) {
///         add_fields! { self += other { restarts; merge queue } }
///     }
/// }
///
/// let server = |n| Server {
///     restarts: n,
///     queue: Queue { offered: 10 * n, dropped: n, length_max: 5 },
/// };
/// let mut all = server(1);
/// all.merge(&server(2));
/// assert_eq!((all.restarts, all.queue.offered, all.queue.dropped), (3, 30, 3));
/// assert_eq!(all.queue.length_max, 5);
/// ```
#[macro_export]
macro_rules! add_fields {
    (
        $self:ident += $other:ident {
            $($count:ident),+ $(; merge $($part:ident),+)? $(; but $($own:ident),+)?
        }
    ) => {
        let Self { $($count,)+ $($($part,)+)? $($($own: _,)+)? } = $other;
        $($self.$count += $count;)+
        $($($self.$part.merge($part);)+)?
    };
}
