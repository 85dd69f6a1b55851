//! The routes sent to a switch, with the set of their labels: a fabric of a thousand switches has a
//! million routes, and each change checks which of them no longer lead to an egress.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::fabric::plan::Route;
use crate::fabric::{Label, Labels};

#[derive(Default)]
pub(super) struct Routes {
    by_label: BTreeMap<Label, Route>,
    labels: Labels,
}

impl Routes {
    pub fn insert(&mut self, label: Label, route: Route) -> Option<Route> {
        self.labels.insert(label);
        self.by_label.insert(label, route)
    }

    pub fn remove(&mut self, label: &Label) -> Option<Route> {
        self.labels.remove(*label);
        self.by_label.remove(label)
    }

    pub fn get_mut(&mut self, label: &Label) -> Option<&mut Route> {
        self.by_label.get_mut(label)
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl Deref for Routes {
    type Target = BTreeMap<Label, Route>;

    fn deref(&self) -> &BTreeMap<Label, Route> {
        &self.by_label
    }
}
