//! Monitors under a virtual network, virtual disks and virtual time. One binary; a module per
//! property.
#![allow(missing_docs, reason = "tests")]

mod basics;
mod beacons;
mod commands;
mod faults;
mod harness;
mod health;

mod many_osds;
mod members;
mod meta;
mod meta_faults;
mod meta_limits;
mod meta_model;
mod meta_programs;
mod meta_scripts;
mod planted;
