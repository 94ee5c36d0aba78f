//! Tables.
use serde_json::{Value,json}; use std::sync::Arc; use crate::kinds::Kind;
pub enum Include{None,Metadata,Object}
pub struct Tables; impl Tables{pub fn new(_:Arc<Kind>,_:Include)->Self{Tables} pub fn render(&mut self,_:&[Value],_:Value,_:jiff::Timestamp)->Value{json!({})} pub fn bookmark(&mut self,_:u64)->Value{json!({})}}