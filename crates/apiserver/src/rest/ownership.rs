//! Who owns which field.
use serde_json::Value; use crate::schema::Schema; use crate::status::ApiError;
pub struct Context<'a>{pub schema:&'a Schema,pub manager:String,pub api_version:String,pub subresource:String,pub applied:bool,pub now:jiff::Timestamp}
pub struct Conflicts; impl Conflicts{pub fn into_error(self)->ApiError{ApiError::internal("x")}}
pub fn track_create(_:&Context<'_>,_:&mut Value){} pub fn track_update(_:&Context<'_>,_:&Value,_:&mut Value){}
pub fn settle_apply(_:&Context<'_>,_:&Value,_:&Value,_:&mut Value){}
pub fn apply(_:&Context<'_>,c:&Value,_:&Value,_:bool)->Result<Value,Conflicts>{Ok(c.clone())}