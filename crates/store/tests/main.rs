//! Tests of the store as a whole; each module is one property.

mod borders;
mod crash;
mod damage;
mod forged;
mod full;
mod late;
mod memory;
mod meter;
mod model;
mod never_fails;
mod plain;
mod planted;
mod pressure;
mod rig;
mod slow;
mod space;
