//! Publishes events: the one place where what a role tells about an object is sent.

use evac_api::call;
use evac_core::action::Event;
use jiff::Timestamp;

use crate::http::Http;

/// Publishes events of one moment of the calendar, one after the other. They are for people; losing one changes nothing.
pub async fn publish(http: &Http, events: impl IntoIterator<Item = Event>, at: Timestamp) {
    for event in events {
        if let Err(error) = http.send(&call::event(&event, at)).await {
            tracing::debug!(%error, reason = event.reason, "event was lost");
        }
    }
}

/// Publishes an event of now.
pub async fn publish_now(http: &Http, event: Event) {
    publish(http, [event], http.clock().calendar()).await;
}
