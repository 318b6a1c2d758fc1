//! Tests of the store as a whole; each module is one property.

mod crash;
mod damage;
mod full;
mod model;
mod rig;
mod space;
