//! Tests of placement from outside: results of other software, properties over random maps, hostile
//! texts.

mod attempts;
mod balancing;
mod golden;
mod hostile;
mod movement;
mod rules;
mod shapes;
