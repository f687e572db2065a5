//! A value that the driver must not log: it logs the parameters of every statement.

use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// A text whose `Debug` shows nothing of it.
pub(super) struct Unlogged(pub(super) String);

impl fmt::Debug for Unlogged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

impl ToSql for Unlogged {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.to_sql(of, out)
    }

    fn accepts(of: &Type) -> bool {
        <String as ToSql>::accepts(of)
    }

    to_sql_checked!();
}
