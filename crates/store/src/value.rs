//! What goes into and comes out of a statement, on either database.

use conductor_domain::ids;
use rusqlite::types::{ToSql as SqliteToSql, ToSqlOutput, ValueRef};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use uuid::Uuid;

use crate::Error;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

macro_rules! from {
    ($($kind:ty => |$value:ident| $make:expr;)*) => {$(
        impl From<$kind> for Value {
            fn from($value: $kind) -> Self { $make }
        }
    )*};
}

from! {
    i64 => |v| Self::Int(v);
    u32 => |v| Self::Int(i64::from(v));
    bool => |v| Self::Int(i64::from(v));
    &str => |v| Self::Text(v.to_owned());
    String => |v| Self::Text(v);
    &String => |v| Self::Text(v.clone());
    Vec<u8> => |v| Self::Bytes(v);
    &[u8] => |v| Self::Bytes(v.to_vec());
    &serde_json::Value => |v| Self::Text(v.to_string());
    Uuid => |v| Self::Bytes(v.as_bytes().to_vec());
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! from_id {
    ($($name:ident)*) => {$(
        impl From<ids::$name> for Value {
            fn from(id: ids::$name) -> Self { Self::Bytes(id.bytes()) }
        }
        impl From<&ids::$name> for Value {
            fn from(id: &ids::$name) -> Self { Self::Bytes(id.bytes()) }
        }
    )*};
}

from_id! {
    OrganisationId EnvironmentId ApplicationId TemplateId TemplateVersionId RuleId ResourceId ChangeId OperationId
    WorkerId TokenId PrincipalId EventId DomainId IntegrationId PoolId WorkspaceId ApprovalId ProposalId
}

/// Builds the parameters of a statement: `params![id, "text", Some(3)]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*] };
}

impl SqliteToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(v) => ValueRef::Integer(*v),
            Self::Text(v) => ValueRef::Text(v.as_bytes()),
            Self::Bytes(v) => ValueRef::Blob(v),
        }))
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(v) => Self::Int(v),
            ValueRef::Real(v) => Self::Text(v.to_string()),
            ValueRef::Text(v) => Self::Text(String::from_utf8_lossy(v).into_owned()),
            ValueRef::Blob(v) => Self::Bytes(v.to_vec()),
        }
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(v) if *kind == Type::INT4 => ToSql::to_sql(&i32::try_from(*v)?, kind, out),
            Self::Int(v) => ToSql::to_sql(v, kind, out),
            Self::Text(v) => ToSql::to_sql(v, kind, out),
            Self::Bytes(v) => ToSql::to_sql(v, kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Int(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Int(i64::from(i32::from_sql(kind, raw)?)),
            Type::BOOL => Self::Int(i64::from(bool::from_sql(kind, raw)?)),
            Type::BYTEA => Self::Bytes(Vec::from_sql(kind, raw)?),
            _ => Self::Text(String::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// One row, read by position. A column of another kind than expected is a bug in a statement, told as such.
#[derive(Clone, Debug)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    fn wrong(&self, at: usize, wanted: &str) -> Error {
        Error::Corrupt(format!("column {at} is not {wanted}"))
    }

    pub fn int(&self, at: usize) -> Result<i64, Error> {
        match self.0.get(at) {
            Some(Value::Int(v)) => Ok(*v),
            _ => Err(self.wrong(at, "a number")),
        }
    }

    pub fn flag(&self, at: usize) -> Result<bool, Error> {
        Ok(self.int(at)? != 0)
    }

    pub fn text(&self, at: usize) -> Result<&str, Error> {
        match self.0.get(at) {
            Some(Value::Text(v)) => Ok(v),
            _ => Err(self.wrong(at, "a text")),
        }
    }

    pub fn bytes(&self, at: usize) -> Result<&[u8], Error> {
        match self.0.get(at) {
            Some(Value::Bytes(v)) => Ok(v),
            _ => Err(self.wrong(at, "bytes")),
        }
    }

    pub fn id<T: From<Uuid>>(&self, at: usize) -> Result<T, Error> {
        Uuid::from_slice(self.bytes(at)?).map(T::from).map_err(|_| self.wrong(at, "an id"))
    }

    pub fn json(&self, at: usize) -> Result<serde_json::Value, Error> {
        serde_json::from_str(self.text(at)?).map_err(|_| self.wrong(at, "JSON"))
    }

    pub fn word<T: std::str::FromStr>(&self, at: usize) -> Result<T, Error> {
        self.text(at)?.parse().map_err(|_| self.wrong(at, "a known word"))
    }

    pub fn is_null(&self, at: usize) -> bool {
        matches!(self.0.get(at), None | Some(Value::Null))
    }

    /// `None` for null, else what `read` makes of the column.
    pub fn opt<'a, T>(
        &'a self,
        at: usize,
        read: impl FnOnce(&'a Self, usize) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.is_null(at) { Ok(None) } else { read(self, at).map(Some) }
    }
}
