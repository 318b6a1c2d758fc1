//! The `bufferlist` of Ceph's classes: bytes owned by the host, copied into Lua only when a script
//! calls `:str()`.

use super::meter::Meter;
use bytes::Bytes;
use mlua::{Lua, MetaMethod, UserData, UserDataMethods, Value};
use std::sync::Arc;

/// Bytes that count against the call's memory. Taking them out is cheap; appending to what was
/// taken out copies once.
#[derive(Debug)]
pub(super) struct Buffer {
    data: Data,
    /// The number of bytes reported to the meter.
    counted: usize,
    meter: Arc<Meter>,
}

#[derive(Debug)]
enum Data {
    Shared(Bytes),
    Own(Vec<u8>),
}

impl Buffer {
    pub(super) fn new(meter: &Arc<Meter>, data: Bytes) -> Self {
        let counted = data.len();
        meter.external_grew(counted);
        Self {
            data: Data::Shared(data),
            counted,
            meter: meter.clone(),
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match &self.data {
            Data::Shared(data) => data,
            Data::Own(data) => data,
        }
    }

    pub(super) fn bytes(&mut self) -> Bytes {
        if let Data::Own(data) = &mut self.data {
            self.data = Data::Shared(Bytes::from(std::mem::take(data)));
        }
        match &self.data {
            Data::Shared(data) => data.clone(),
            Data::Own(_) => unreachable!("made shared above"),
        }
    }

    /// Replaces the bytes; returns the old ones.
    pub(super) fn replace(&mut self, data: Bytes) -> Bytes {
        let before = self.bytes();
        self.meter.external_went(self.counted);
        self.counted = data.len();
        self.meter.external_grew(self.counted);
        self.data = Data::Shared(data);
        before
    }

    fn append(&mut self, more: &[u8]) {
        if let Data::Shared(data) = &self.data {
            let mut own = Vec::with_capacity(data.len() + more.len());
            own.extend_from_slice(data);
            self.data = Data::Own(own);
        }
        if let Data::Own(own) = &mut self.data {
            own.extend_from_slice(more);
            // The capacity is the memory held: the caller of the append pays for doubling.
            let held = own.capacity();
            if held > self.counted {
                self.meter.external_grew(held - self.counted);
                self.counted = held;
            }
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.meter.external_went(self.counted);
    }
}

/// A string or bufferlist as bytes; a number as its text, as Lua does.
pub(super) fn bytes_of(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(Bytes::copy_from_slice(&text.as_bytes())),
        Value::UserData(data) => data
            .borrow_mut::<Buffer>()
            .ok()
            .map(|mut buffer| buffer.bytes()),
        Value::Integer(number) => Some(Bytes::from(number.to_string())),
        Value::Number(number) => Some(Bytes::from(number.to_string())),
        _ => None,
    }
}

fn operand(value: &Value) -> mlua::Result<Bytes> {
    bytes_of(value).ok_or_else(|| {
        mlua::Error::runtime(format!(
            "a bufferlist or string is needed here, not a {}",
            value.type_name()
        ))
    })
}

impl UserData for Buffer {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("str", |lua, this, ()| {
            this.meter
                .charge(lua, this.as_slice().len() as u64 / 1024)?;
            lua.create_string(this.as_slice())
        });
        methods.add_function("append", |lua, (this, more): (mlua::AnyUserData, Value)| {
            // A list appended to itself: taken out first.
            let more = operand(&more)?;
            let mut this = this.borrow_mut::<Self>()?;
            let meter = this.meter.clone();
            meter.charge(lua, more.len() as u64 / 1024)?;
            this.append(&more);
            drop(this);
            meter.watch_memory(lua)
        });
        methods.add_meta_method(MetaMethod::Len, |_, this, ()| Ok(this.as_slice().len()));
        methods.add_meta_method(MetaMethod::ToString, |_, _, ()| Ok("bufferlist"));
        methods.add_meta_function(MetaMethod::Concat, |lua, (left, right): (Value, Value)| {
            let (left, right) = (operand(&left)?, operand(&right)?);
            let meter = meter_of(lua);
            meter.charge(lua, (left.len() + right.len()) as u64 / 1024)?;
            let mut joined = Self::new(&meter, left);
            joined.append(&right);
            meter.watch_memory(lua)?;
            Ok(joined)
        });
        methods.add_meta_function(MetaMethod::Eq, |lua, (left, right): (Value, Value)| {
            compare(lua, &left, &right).map(|order| order.is_eq())
        });
        methods.add_meta_function(MetaMethod::Lt, |lua, (left, right): (Value, Value)| {
            compare(lua, &left, &right).map(|order| order.is_lt())
        });
        methods.add_meta_function(MetaMethod::Le, |lua, (left, right): (Value, Value)| {
            compare(lua, &left, &right).map(|order| order.is_le())
        });
    }
}

fn compare(lua: &Lua, left: &Value, right: &Value) -> mlua::Result<std::cmp::Ordering> {
    let (left, right) = (operand(left)?, operand(right)?);
    // If one of them was a string, it was copied.
    meter_of(lua).charge(lua, left.len().max(right.len()) as u64 / 1024)?;
    Ok(left.cmp(&right))
}

/// The VM's meter.
pub(super) fn meter_of(lua: &Lua) -> Arc<Meter> {
    lua.app_data_ref::<Arc<Meter>>()
        .expect("every VM has a meter")
        .clone()
}
