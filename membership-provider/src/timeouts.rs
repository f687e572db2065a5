//! How long operations and connections may take. Clause T13.

use std::ops::RangeInclusive;
use std::time::Duration;

use membership_core::{ConnectionOption, Operation, TableError, TableErrorKind};
use tokio::time::Instant;

use crate::unanswered;

/// The timeouts of a provider. Defaults: 5 s for an operation, 2 s for a connection; both may be
/// 10 ms to 1 h.
///
/// ```
/// use std::time::Duration;
/// use membership_provider::Timeouts;
///
/// let mut timeouts = Timeouts::default();
/// timeouts.set_operation(Duration::from_secs(1));
/// timeouts.validate("mystore")?;
/// // A connection is part of an operation.
/// assert_eq!(timeouts.connect(), Duration::from_secs(1));
/// timeouts.set_operation(Duration::ZERO);
/// assert!(timeouts.validate("mystore").unwrap_err().to_string().contains("10 ms to 1 h"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    operation: Duration,
    connect: Duration,
}

impl Default for Timeouts {
    /// Long enough for an election or a failover, short enough for a silo to notice that the store
    /// is gone. A server that takes longer than 2 s to accept a connection is as good as down.
    fn default() -> Self {
        Self::new(Duration::from_secs(5), Duration::from_secs(2))
    }
}

impl Timeouts {
    /// What a timeout may be: below 10 ms no network can be crossed, above 1 h no caller waits.
    pub const RANGE: RangeInclusive<Duration> =
        Duration::from_millis(10)..=Duration::from_secs(3600);

    /// These defaults.
    #[must_use]
    pub const fn new(operation: Duration, connect: Duration) -> Self {
        Self { operation, connect }
    }

    /// How long one operation may take, connecting included.
    pub const fn set_operation(&mut self, timeout: Duration) {
        self.operation = timeout;
    }

    /// How long one connection may take to be made.
    pub const fn set_connect(&mut self, timeout: Duration) {
        self.connect = timeout;
    }

    /// Takes the options `operation_timeout` and `connect_timeout`; `false` for another option.
    ///
    /// # Errors
    /// `Configuration`: the value is not a time.
    pub fn set(&mut self, option: &ConnectionOption) -> Result<bool, TableError> {
        match option.name() {
            "operation_timeout" => self.operation = option.duration()?,
            "connect_timeout" => self.connect = option.duration()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// For a client that connects within its operations: takes the option `operation_timeout`, and
    /// checks it. No other option is known.
    ///
    /// ```
    /// use membership_core::ConnectionString;
    /// use membership_provider::Timeouts;
    ///
    /// let parse = |url| ConnectionString::parse("mystore", &["mystore"], url);
    /// let timeouts = |url| Timeouts::of_operations("mystore", &parse(url)?.options);
    /// assert_eq!(timeouts("mystore://h?operation_timeout=3s")?.operation().as_secs(), 3);
    /// assert!(timeouts("mystore://h?operation_timeout=0s").is_err());
    /// assert!(timeouts("mystore://h?connect_timeout=3s").is_err());
    /// # Ok::<(), membership_core::TableError>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration`: another option, or a value that is no time or out of range.
    pub fn of_operations(
        store: &'static str,
        options: &[ConnectionOption],
    ) -> Result<Self, TableError> {
        let mut timeouts = Self::default();
        for option in options {
            match option.name() {
                "operation_timeout" => timeouts.operation = option.duration()?,
                _ => return Err(option.unknown("operation_timeout")),
            }
        }
        timeouts.validate(store)?;
        Ok(timeouts)
    }

    /// Checks both against [`RANGE`](Self::RANGE).
    ///
    /// # Errors
    /// `Configuration`
    pub fn validate(&self, store: &'static str) -> Result<(), TableError> {
        check_timeout(store, "operation_timeout", self.operation, &Self::RANGE)?;
        check_timeout(store, "connect_timeout", self.connect, &Self::RANGE)
    }

    /// How long one operation may take.
    #[must_use]
    pub const fn operation(&self) -> Duration {
        self.operation
    }

    /// How long one connection may take: never longer than an operation.
    #[must_use]
    pub fn connect(&self) -> Duration {
        self.connect.min(self.operation)
    }

    /// When an operation that begins now must end.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.operation
    }

    /// What a request comes to, or [`unanswered`] where it takes longer than an operation may.
    /// `writes` says whether it may change something.
    ///
    /// ```
    /// use membership_core::TableErrorKind;
    /// use membership_provider::Timeouts;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut timeouts = Timeouts::default();
    /// assert_eq!(timeouts.limit("mystore", true, async { 7 }).await.ok(), Some(7));
    /// timeouts.set_operation(std::time::Duration::from_millis(10));
    /// let error = timeouts.limit("mystore", true, std::future::pending::<()>()).await;
    /// assert_eq!(error.unwrap_err().kind(), TableErrorKind::OutcomeUnknown);
    /// # }
    /// ```
    ///
    /// # Errors
    /// `OutcomeUnknown` for a request that writes, else `Unavailable`.
    pub async fn limit<T>(
        &self,
        store: &'static str,
        writes: bool,
        request: impl Future<Output = T>,
    ) -> Result<T, TableError> {
        let answer = tokio::time::timeout(self.operation, request).await;
        let why = || format!("no answer within {:?}", self.operation);
        answer.map_err(|_| unanswered(store, writes, &why()))
    }
}

/// Refuses a timeout outside of `range`, by the name of its option.
///
/// ```
/// use std::time::Duration;
/// use membership_provider::check_timeout;
///
/// let range = Duration::from_millis(100)..=Duration::from_secs(600);
/// assert!(check_timeout("mystore", "session_timeout", Duration::from_secs(1), &range).is_ok());
/// let error = check_timeout("mystore", "session_timeout", Duration::ZERO, &range).unwrap_err();
/// assert!(error.to_string().contains("session_timeout must be 100 ms to 10 min"));
/// ```
///
/// # Errors
/// `Configuration`
pub fn check_timeout(
    store: &'static str,
    name: &str,
    timeout: Duration,
    range: &RangeInclusive<Duration>,
) -> Result<(), TableError> {
    if range.contains(&timeout) {
        return Ok(());
    }
    let (least, most) = (shown(*range.start()), shown(*range.end()));
    Err(TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        store,
        format!("{name} must be {least} to {most}"),
    ))
}

/// In the largest unit that it is a whole number of.
fn shown(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use membership_core::ConnectionString;

    use super::*;

    #[test]
    fn options_set_them_and_others_are_left() {
        let url = "test://h?operation_timeout=3s&connect_timeout=250ms&colour=red";
        let url = ConnectionString::parse("test", &["test"], url).unwrap();
        let mut timeouts = Timeouts::default();
        let taken: Vec<bool> = url
            .options
            .iter()
            .map(|o| timeouts.set(o).unwrap())
            .collect();
        assert_eq!(taken, [true, true, false]);
        assert_eq!(
            (
                timeouts.operation().as_secs(),
                timeouts.connect().as_millis()
            ),
            (3, 250)
        );
        let url = ConnectionString::parse("test", &["test"], "test://h?connect_timeout=1").unwrap();
        assert!(timeouts.set(&url.options[0]).is_err());
    }

    #[test]
    fn each_must_be_in_its_range() {
        let hour = Duration::from_secs(3600);
        let valid = |operation, connect| Timeouts::new(operation, connect).validate("test").is_ok();
        assert!(valid(hour, Duration::from_millis(10)));
        assert!(!valid(hour + Duration::from_nanos(1), hour));
        assert!(!valid(hour, Duration::from_millis(9)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_and_a_write_may_have_happened() {
        use TableErrorKind::{OutcomeUnknown, Unavailable};
        let timeouts = Timeouts::new(Duration::from_secs(1), Duration::from_secs(1));
        for (writes, kind) in [(true, OutcomeUnknown), (false, Unavailable)] {
            let began = Instant::now();
            let error = timeouts.limit("test", writes, std::future::pending::<()>());
            assert_eq!(error.await.unwrap_err().kind(), kind);
            assert_eq!(began.elapsed(), timeouts.operation());
        }
    }
}
