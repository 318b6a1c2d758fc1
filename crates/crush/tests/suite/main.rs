//! Tests of placement from the outside: other software's answers, properties over random maps,
//! hostile texts.

mod attempts;
mod balancing;
mod golden;
mod hostile;
mod movement;
mod rules;
mod shapes;
